/* Makes more than 80 distinct system calls, each a different number of times. Most of them fail: -1 is neither a
   descriptor nor an address. */
#include <sys/syscall.h>
#include <unistd.h>

#define MAKE(call, times) for (int made = 0; made < (times); made++) syscall(SYS_##call, -1, 0, 0, 0, 0, 0);

int main(void) {
    MAKE(bind, 3) MAKE(capget, 4) MAKE(chdir, 5) MAKE(clock_getres, 6) MAKE(clock_gettime, 7)
    MAKE(connect, 8) MAKE(dup, 9) MAKE(dup3, 10) MAKE(epoll_create1, 11) MAKE(epoll_ctl, 12)
    MAKE(eventfd2, 13) MAKE(faccessat, 14) MAKE(fallocate, 15) MAKE(fchdir, 16) MAKE(fchmod, 17)
    MAKE(fchmodat, 18) MAKE(fchown, 19) MAKE(fchownat, 20) MAKE(fdatasync, 21) MAKE(fgetxattr, 22)
    MAKE(flistxattr, 23) MAKE(flock, 24) MAKE(fremovexattr, 25) MAKE(fsetxattr, 26) MAKE(fstatfs, 27)
    MAKE(fsync, 28) MAKE(ftruncate, 29) MAKE(getcwd, 30) MAKE(getdents64, 31) MAKE(getegid, 32)
    MAKE(geteuid, 33) MAKE(getgid, 34) MAKE(getgroups, 35) MAKE(getitimer, 36) MAKE(getpeername, 37)
    MAKE(getpgid, 38) MAKE(getpid, 39) MAKE(getppid, 40) MAKE(getpriority, 41) MAKE(getresgid, 42)
    MAKE(getresuid, 43) MAKE(getrusage, 44) MAKE(getsid, 45) MAKE(getsockname, 46) MAKE(getsockopt, 47)
    MAKE(gettid, 48) MAKE(gettimeofday, 49) MAKE(getuid, 50) MAKE(getxattr, 51) MAKE(inotify_add_watch, 52)
    MAKE(inotify_rm_watch, 53) MAKE(lgetxattr, 54) MAKE(linkat, 55) MAKE(listen, 56) MAKE(listxattr, 57)
    MAKE(lseek, 58) MAKE(mkdirat, 59) MAKE(mlock, 60) MAKE(pipe2, 61) MAKE(preadv, 62)
    MAKE(pwrite64, 63) MAKE(pwritev, 64) MAKE(readahead, 65) MAKE(readlinkat, 66) MAKE(readv, 67)
    MAKE(renameat2, 68) MAKE(sched_get_priority_max, 69) MAKE(sched_get_priority_min, 70)
    MAKE(sched_getparam, 71) MAKE(sched_getscheduler, 72) MAKE(sched_rr_get_interval, 73) MAKE(sendfile, 74)
    MAKE(setsockopt, 75) MAKE(shutdown, 76) MAKE(symlinkat, 77) MAKE(sysinfo, 78) MAKE(timerfd_gettime, 79)
    MAKE(times, 80) MAKE(truncate, 81) MAKE(umask, 82) MAKE(uname, 83) MAKE(unlinkat, 84)
    MAKE(utimensat, 85) MAKE(writev, 86)
    return 0;
}
