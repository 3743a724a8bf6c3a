/* The floor under any sandbox of this shape: one frame to each of N processes, one back.
 *
 * N children, each behind its own SEQPACKET socket pair, send back the frame they get. The
 * supervisor writes to all, then reads from all, which is what the sandbox server does
 * without the program, the protocol, the jail and gRPC. What is left is the kernel: two
 * messages and two context switches a step.
 *
 * Usage: pingpong EPISODES SECONDS FRAME_BYTES
 * Prints one line: steps done, seconds taken.
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

enum { MAX_FRAME = 65536 };

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

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: pingpong EPISODES SECONDS FRAME_BYTES\n");
        return 2;
    }
    int episodes = atoi(argv[1]);
    double seconds = atof(argv[2]);
    int bytes = atoi(argv[3]);
    static char frame[MAX_FRAME];
    if (episodes < 1 || seconds <= 0 || bytes < 1 || bytes > MAX_FRAME) {
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
    long steps = 0;
    double start = 0, end = 0;
    /* The first round warms the children up and is not counted. */
    for (int round = 0; round == 0 || end - start < seconds; round++) {
        for (int i = 0; i < episodes; i++)
            if (send(fds[i], frame, bytes, MSG_NOSIGNAL) != bytes)
                die("send");
        for (int i = 0; i < episodes; i++)
            if (recv(fds[i], frame, sizeof frame, 0) != bytes)
                die("recv");
        end = now_s();
        if (round == 0)
            start = end;
        else
            steps += episodes;
    }
    printf("%ld %.6f\n", steps, end - start);
    for (int i = 0; i < episodes; i++)
        close(fds[i]);
    while (wait(NULL) > 0)
        ;
    return 0;
}
