/* The floor under any sandbox of this shape: one frame to each of N processes, one back.
 *
 * N children, each behind its own SEQPACKET socket pair, send back the frame they get. The
 * supervisor writes to all, then reads from all, which is what the sandbox server does
 * without the program, the protocol, the jail and gRPC. What is left is the kernel: two
 * messages and two context switches a step.
 *
 * Usage: pingpong EPISODES FRAME_BYTES
 * Reads numbers of rounds, and prints a line for each: steps done, seconds taken, and median and
 * 99th percentile of the seconds from a round's start to an item's answer. Ends with its input.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FRAME = 65536, MAX_SAMPLES = 100000 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void die(const char *what)
{
    fprintf(stderr, "pingpong: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void serve(int fd)
{
    static char frame[MAX_FRAME];
    ssize_t n;

    while ((n = recv(fd, frame, sizeof frame, 0)) > 0)
        if (send(fd, frame, n, MSG_NOSIGNAL) != n)
            break;
    _exit(0);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: pingpong EPISODES FRAME_BYTES\n");
        return 2;
    }
    int episodes = atoi(argv[1]);
    int bytes = atoi(argv[2]);
    static char frame[MAX_FRAME];
    static double sample[MAX_SAMPLES];
    if (episodes < 1 || bytes < 1 || bytes > MAX_FRAME) {
        fprintf(stderr, "pingpong: a number is out of range\n");
        return 2;
    }
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);

    int *fds = calloc(episodes, sizeof *fds);
    for (int i = 0; i < episodes; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
            die("socketpair");
        pid_t child = fork();
        if (child < 0)
            die("fork");
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            /* A leaked peer means no end of file, and children that never leave. */
            for (int j = 0; j < i; j++)
                close(fds[j]);
            close(pair[0]);
            serve(pair[1]);
        }
        close(pair[1]);
        fds[i] = pair[0];
    }
    memset(frame, 'x', sizeof frame);
    long rounds;
    while (scanf("%ld", &rounds) == 1) {
        long samples = 0;
        double start = now_s();
        for (long round = 0; round < rounds; round++) {
            double sent = now_s();
            for (int i = 0; i < episodes; i++)
                if (send(fds[i], frame, bytes, MSG_NOSIGNAL) != bytes)
                    die("send");
            for (int i = 0; i < episodes; i++) {
                if (recv(fds[i], frame, sizeof frame, 0) != bytes)
                    die("recv");
                if (samples < MAX_SAMPLES)
                    sample[samples++] = now_s() - sent;
            }
        }
        double took = now_s() - start;
        qsort(sample, samples, sizeof *sample, by_value);
        printf("%ld %.6f %.9f %.9f\n", rounds * episodes, took, sample[samples / 2],
               sample[samples * 99 / 100]);
        fflush(stdout);
    }
    for (int i = 0; i < episodes; i++)
        close(fds[i]);
    while (wait(NULL) > 0)
        ;
    return 0;
}
