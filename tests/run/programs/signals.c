/* Handlers, masks, interrupted and restarted calls, timers, and a signal queue. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t alarms, users, sum;

static void on_alarm(int signal) { alarms++; }
static void on_user(int signal, siginfo_t *info, void *context) { users++; sum += info->si_value.sival_int; }

int main(void)
{
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_handler = on_alarm;
	sigaction(SIGALRM, &action, 0);
	struct itimerval timer = {{0, 5000}, {0, 5000}};
	setitimer(ITIMER_REAL, &timer, 0);
	/* Without SA_RESTART a call is interrupted. */
	int pair[2];
	char byte;
	if (pipe(pair) || read(pair[0], &byte, 1) != -1 || errno != EINTR)
		return 1;
	/* With it the call goes on. */
	action.sa_flags = SA_RESTART;
	sigaction(SIGALRM, &action, 0);
	pid_t child = fork();
	if (child == 0) {
		usleep(50000);
		_exit(write(pair[1], "x", 1) != 1);
	}
	if (read(pair[0], &byte, 1) != 1 || byte != 'x')
		return 2;
	memset(&timer, 0, sizeof timer);
	setitimer(ITIMER_REAL, &timer, 0);
	/* Queued signals keep their number and their values while they are blocked. */
	memset(&action, 0, sizeof action);
	action.sa_sigaction = on_user;
	action.sa_flags = SA_SIGINFO;
	sigaction(SIGRTMIN, &action, 0);
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	sigprocmask(SIG_BLOCK, &set, 0);
	for (int i = 1; i <= 10; i++) {
		union sigval value = {.sival_int = i};
		sigqueue(getpid(), SIGRTMIN, value);
	}
	if (users)
		return 3;
	sigprocmask(SIG_UNBLOCK, &set, 0);
	if (users != 10 || sum != 55 || alarms < 2)
		return 4;
	/* A sleep is as long as it should be, in spite of handlers. */
	struct timespec wanted = {0, 20000000};
	while (nanosleep(&wanted, &wanted) && errno == EINTR)
		;
	return 42;
}
