"""Threads, files and children; says at its end which calls it made: name, how often, how many bytes."""

import collections
import os
import subprocess
import sys
import threading

HITS, BYTES = collections.Counter(), collections.Counter()
LOCK = threading.Lock()


def did(call, count=0):
    with LOCK:
        HITS[call] += 1
        BYTES[call] += count
    return count


def in_thread(number):
    path = f"file.{number}"
    with open(path, "wb", buffering=0) as file:
        for index in range(200):
            file.write(b"x" * (number + 1))
            did("pwrite64", os.pwrite(file.fileno(), b"some words", 1000 * index))
            os.getpgid(0)
            did("getpgid")
        os.fdatasync(file.fileno())
        did("fdatasync")
    here = os.open(".", os.O_RDONLY)
    for index in range(20):
        os.mkdir(f"{path}.{index}", dir_fd=here)
        did("mkdirat")
    os.close(here)


def in_child():
    script = "import os\nfor _ in range(150): os.getpgid(0)\nos._exit(9)"
    ended = subprocess.run([sys.executable, "-B", "-c", script], check=False)
    assert ended.returncode == 9, ended
    for _ in range(150):
        did("getpgid")
    # In a shell, with pipes in both directions.
    ended = subprocess.run(["sh", "-c", "read x; exit $x"], input=b"33\n", check=False)
    assert ended.returncode == 33, ended
    ended = subprocess.run(["cat"], input=b"y" * 50_000, stdout=subprocess.PIPE, check=True)
    assert ended.stdout == b"y" * 50_000


def in_fork():
    child = os.fork()
    if child == 0:
        for _ in range(70):
            os.getpgid(0)
        os._exit(5)
    for _ in range(70):
        did("getpgid")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5


def main():
    in_fork()
    threads = [threading.Thread(target=in_thread, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    children = [threading.Thread(target=in_child) for _ in range(4)]
    for thread in children:
        thread.start()
    for thread in children:
        thread.join()
    assert os.path.getsize("file.5") == 199 * 1000 + 10
    for call in sorted(HITS):
        print(call, HITS[call], BYTES[call])
    sys.exit(42)


main()
