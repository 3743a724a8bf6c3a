"""Attacks on files: the host's, the server's, the runtime's and other episodes'."""

from __future__ import annotations

from tests.security.attack import Attack

HOST = "the host's files are not there"
SERVER = "nothing of the server's is there: files, environment, descriptors"
RUNTIME = "the runtime and the worker cannot be changed"
SCRATCH = "scratch is private and bounded"
DEVICES = "no devices but null, zero and urandom"

_GONE = r"refused: FileNotFoundError ENOENT"
_READ_ONLY = r"refused: (OSError EROFS|PermissionError (EPERM|EACCES))"

ATTACKS = (
    Attack(
        "reads the host's password file", HOST,
        "return said(attempt(open, '/etc/shadow'))",
        says=_GONE,
    ),
    Attack(
        "reads a file that lies on the host", HOST,
        "return said(attempt(open, json.loads(action)['canary']))",
        says=_GONE,
    ),
    Attack(
        "climbs out of scratch by ..", HOST,
        "path = json.loads(action)['canary']\n"
        "os.chdir('/tmp')\n"
        "return said(attempt(open, '../' * 40 + path))",
        says=_GONE,
    ),
    Attack(
        "climbs out by .. from a descriptor of the root", HOST,
        "root = os.open('/', os.O_RDONLY)\n"
        "for _ in range(20):\n    root = os.open('..', os.O_RDONLY, dir_fd=root)\n"
        "path = json.loads(action)['canary'].lstrip('/')\n"
        "return said(attempt(os.open, path, os.O_RDONLY, dir_fd=root))",
        says=_GONE,
    ),
    Attack(
        "reads the host through a symbolic link", HOST,
        "os.symlink(json.loads(action)['canary'], '/tmp/link')\n"
        "return said(attempt(open, '/tmp/link'))",
        says=_GONE,
    ),
    Attack(
        "reads the host through a chain of symbolic links", HOST,
        "os.symlink('/', '/tmp/root')\nos.symlink('root/..', '/tmp/up')\n"
        "return said(attempt(open, '/tmp/up/..' + json.loads(action)['canary']))",
        says=_GONE,
    ),
    Attack(
        "a loop of symbolic links", HOST,
        "os.symlink('b', '/tmp/a')\nos.symlink('a', '/tmp/b')\n"
        "return said(attempt(open, '/tmp/a'))",
        says=r"refused: OSError ELOOP",
    ),
    Attack(
        "lists what the root holds", HOST,
        "known = {'bin', 'dev', 'etc', 'home', 'lib', 'lib64', 'opt', 'proc', 'spadework',\n"
        "         'sys', 'tmp', 'usr', 'run', '.complete', 'site', 'manifest.json'}\n"
        "return said(sorted(set(os.listdir('/')) - known))",
        says=r"\[\]",
    ),
    Attack(
        "finds folders of people", HOST,
        "found = []\n"
        "for path in ('/home', '/root', '/var', '/mnt', '/media', '/srv', '/boot'):\n"
        "    try: found += os.listdir(path)\n"
        "    except OSError: pass\n"
        "return said(found)",
        says=r"\[\]",
    ),
    Attack(
        "opens a file by its handle", HOST,
        "return said(kernel(304, 265, -100, 0, 0))",
        says=r"refused: EPERM",
    ),
    Attack(
        "reads the server's package", SERVER,
        "return said(attempt(os.listdir, json.loads(action)['package']))",
        says=_GONE,
    ),
    Attack(
        "reads the server's cache folder", SERVER,
        "return said(attempt(os.listdir, json.loads(action)['cache']))",
        says=_GONE,
    ),
    Attack(
        "reads the server's temporary files", SERVER,
        "return said(attempt(os.listdir, json.loads(action)['tmp']))",
        says=_GONE,
    ),
    Attack(
        "reads the server's environment", SERVER,
        "names = set(os.environ)\n"
        "class Everything(ctypes.Structure): pass\n"
        "environ = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, 'environ')\n"
        "at = 0\n"
        "while environ[at]:\n"
        "    names.add(environ[at].decode().partition('=')[0])\n    at += 1\n"
        "known = 'HOME LC_CTYPE LD_LIBRARY_PATH PATH TMPDIR MKL_NUM_THREADS OMP_NUM_THREADS '\n"
        "known += 'OPENBLAS_NUM_THREADS PYTHONDONTWRITEBYTECODE PYTHONHASHSEED PYTHONPATH '\n"
        "known += 'PYTHONSAFEPATH PYTHONUTF8'\n"
        "return said(sorted(names - set(known.split())))",
        says=r"\[\]",
    ),
    Attack(
        "reads the environment it was started with", SERVER,
        "return said(attempt(open, '/proc/self/environ'))",
        says=r"refused: (FileNotFoundError ENOENT|PermissionError EACCES)",
    ),
    Attack(
        "looks for inherited descriptors", SERVER,
        "found = []\n"
        "for fd in range(4096):\n"
        "    try: os.fstat(fd)\n"
        "    except OSError: continue\n"
        "    found.append(fd)\n"
        "return said(found)",
        says=r"\[0, 1, 2, 3\]",
    ),
    Attack(
        "writes into the runtime", RUNTIME,
        "return said(attempt(open, '/opt/python/lib/x', 'w'))",
        says=_READ_ONLY,
    ),
    Attack(
        "replaces a module of the standard library", RUNTIME,
        "return said(attempt(open, os.__file__, 'r+'))",
        says=_READ_ONLY,
    ),
    Attack(
        "writes into the worker", RUNTIME,
        "return said(attempt(open, '/spadework/worker/episode.py', 'r+'))",
        says=_READ_ONLY,
    ),
    Attack(
        "removes the worker", RUNTIME,
        "return said(attempt(os.unlink, '/spadework/worker/episode.py'))",
        says=_READ_ONLY,
    ),
    Attack(
        "renames the runtime", RUNTIME,
        "return said(attempt(os.rename, '/opt/python', '/tmp/python'))",
        says=r"refused: (OSError (EROFS|EXDEV)|PermissionError (EPERM|EACCES))",
    ),
    Attack(
        "makes the runtime writable", RUNTIME,
        "return said(attempt(os.chmod, '/opt/python', 0o777))",
        says=_READ_ONLY,
    ),
    Attack(
        "writes into the root", RUNTIME,
        "return said(attempt(open, '/x', 'w'))",
        says=_READ_ONLY,
    ),
    Attack(
        "leaves a sitecustomize beside the interpreter", RUNTIME,
        "where = [p for p in sys.path if p] + ['/']\n"
        "return said({attempt(open, p + '/sitecustomize.py', 'w') for p in where} and\n"
        "            [attempt(open, p + '/sitecustomize.py', 'w') for p in where if\n"
        "             attempt(open, p + '/sitecustomize.py', 'w').startswith('went')])",
        says=r"\[\]",
    ),
    Attack(
        "writes to a file of the runtime through a hard link", RUNTIME,
        "return said(attempt(os.link, os.__file__, '/tmp/os.py'))",
        says=r"refused: (OSError (EXDEV|EROFS)|PermissionError (EPERM|EACCES))",
    ),
    Attack(
        "locks a folder that it shares with the server", RUNTIME,
        "import fcntl\n"
        "where = ['/', '/opt/python', '/spadework', '/dev/null', os.__file__]\n"
        "return said(sorted({attempt(fcntl.flock, os.open(p, os.O_RDONLY), fcntl.LOCK_SH)\n"
        "                    for p in where}))",
        says=r"\['refused: PermissionError EPERM'\]",
    ),
    Attack(
        "a sparse file of a terabyte", SCRATCH,
        "with open('/tmp/x', 'wb') as f:\n    f.truncate(1 << 40)",
        limits={"scratch_bytes": 4 << 20},
        outcomes=("OUTPUT_LIMIT",), limit="scratch_bytes",
    ),
    Attack(
        "a write at the end of a terabyte", SCRATCH,
        "with open('/tmp/x', 'wb') as f:\n    f.seek(1 << 40)\n    f.write(b'x')",
        limits={"scratch_bytes": 4 << 20},
        outcomes=("OUTPUT_LIMIT",), limit="scratch_bytes",
    ),
    Attack(
        "reserves space without writing", SCRATCH,
        "fd = os.open('/tmp/x', os.O_CREAT | os.O_RDWR)\n"
        "for i in range(64):\n    os.posix_fallocate(os.open(f'/tmp/{i}', 66), 0, 1 << 20)",
        limits={"scratch_bytes": 4 << 20, "max_open_files": 128},
        outcomes=("OUTPUT_LIMIT",), limit="scratch_bytes",
    ),
    Attack(
        "fills scratch file by file", SCRATCH,
        "for i in range(1000):\n    with open(f'/tmp/{i}', 'wb') as f: f.write(bytes(1 << 20))",
        limits={"scratch_bytes": 4 << 20},
        outcomes=("OUTPUT_LIMIT",), limit="scratch_bytes",
    ),
    Attack(
        "fills scratch with files that have no name any more", SCRATCH,
        "kept = []\n"
        "for i in range(64):\n"
        "    kept.append(open('/tmp/x', 'wb'))\n    os.unlink('/tmp/x')\n"
        "    kept[-1].write(bytes(1 << 20))\n    kept[-1].flush()",
        limits={"scratch_bytes": 4 << 20, "max_open_files": 128},
        outcomes=("OUTPUT_LIMIT",), limit="scratch_bytes",
    ),
    Attack(
        "a flood of files", SCRATCH,
        "for i in range(10_000): open(f'/tmp/{i}', 'w').close()",
        limits={"scratch_inodes": 32},
        outcomes=("OUTPUT_LIMIT",), limit="scratch_inodes",
    ),
    Attack(
        "a flood of hard links", SCRATCH,
        "open('/tmp/x', 'w').close()\n"
        "for i in range(10_000): os.link('/tmp/x', f'/tmp/{i}')",
        limits={"scratch_inodes": 32},
        outcomes=("OUTPUT_LIMIT",), limit="scratch_inodes",
    ),
    Attack(
        "a flood of symbolic links", SCRATCH,
        "for i in range(10_000): os.symlink('x' * 4_000, f'/tmp/{i}')",
        limits={"scratch_inodes": 32},
        outcomes=("OUTPUT_LIMIT",), limit="scratch_inodes",
    ),
    Attack(
        "a tree of folders too deep for a path", SCRATCH,
        "depth = 0\n"
        "try:\n"
        "    while True:\n"
        "        os.mkdir('d' * 200)\n        os.chdir('d' * 200)\n        depth += 1\n"
        "except OSError as error:\n"
        "    return said(f'{depth > 1_000} {errno.errorcode[error.errno]}')",
        limits={"scratch_inodes": 2_000},
        says=r"True ENOSPC",
    ),
    Attack(
        "as many files as the largest limit allows", SCRATCH,
        "for i in range(60_000): os.close(os.open(f'/tmp/{i}', os.O_CREAT))",
        limits={"scratch_inodes": 65_536},
        says=r"survived",
    ),
    Attack(
        "attributes instead of files", SCRATCH,
        "open('/tmp/x', 'w').close()\n"
        "return said(attempt(os.setxattr, '/tmp/x', 'user.x', b'x' * 4_096))",
        says=r"refused: (PermissionError EPERM|OSError EOPNOTSUPP)",
    ),
    Attack(
        "executes a file in scratch", SCRATCH,
        "with open('/tmp/x', 'w') as f: f.write('#!/opt/python/bin/python3')\n"
        "os.chmod('/tmp/x', 0o4755)\n"
        "return said(attempt(os.execv, '/tmp/x', ['x']))",
        says=r"refused: PermissionError (EPERM|EACCES)",
    ),
    Attack(
        "maps a file in scratch as code", SCRATCH,
        "import mmap\n"
        "with open('/tmp/x', 'w+b') as f:\n"
        "    f.write(bytes(4096))\n    f.flush()\n"
        "    return said(attempt(mmap.mmap, f.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_EXEC))",
        says=r"refused: PermissionError EPERM",
    ),
    Attack(
        "removes scratch itself", SCRATCH,
        "return said(attempt(os.rmdir, '/tmp'))",
        says=r"refused: (OSError (EBUSY|EROFS)|PermissionError (EPERM|EACCES))",
    ),
    *(
        Attack(
            f"opens {device}", DEVICES,
            f"return said(attempt(os.open, {device!r}, os.O_RDWR))",
            says=r"refused: (FileNotFoundError ENOENT|PermissionError (EPERM|EACCES))",
        )
        for device in (
            "/dev/mem", "/dev/kmem", "/dev/kmsg", "/dev/sda", "/dev/vda", "/dev/fuse", "/dev/kvm",
            "/dev/net/tun", "/dev/loop-control", "/dev/ptmx", "/dev/tty", "/dev/console",
        )
    ),
    Attack(
        "makes a device node", DEVICES,
        "return said(attempt(os.mknod, '/tmp/x', 0o666 | 0o020000, os.makedev(1, 1)))",
        says=r"refused: PermissionError EPERM",
    ),
    Attack(
        "makes a block device node", DEVICES,
        "return said(attempt(os.mknod, '/tmp/x', 0o666 | 0o060000, os.makedev(8, 0)))",
        says=r"refused: PermissionError EPERM",
    ),
    Attack(
        "makes a named pipe", DEVICES,
        "return said(attempt(os.mkfifo, '/tmp/x'))",
        says=r"refused: PermissionError EPERM",
    ),
    Attack(
        "changes the mode of a shared device", DEVICES,
        "return said(attempt(os.chmod, '/dev/null', 0))",
        says=_READ_ONLY,
    ),
)  # fmt: skip
