/* A thousand calls when the first file appears, a thousand more at the second. Signals are counted and do nothing. */
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static void on_user(int signal) {}

static void make(const char *name)
{
	close(open(name, O_CREAT | O_WRONLY, 0600));
}

static void step(const char *name)
{
	while (access(name, F_OK))
		usleep(1000);
	for (int i = 0; i < 1000; i++)
		syscall(SYS_getppid);
}

int main(int count, char **words)
{
	if (count < 2 || chdir(words[1]))
		return 1;
	signal(SIGUSR1, on_user);
	make("ready");
	step("first");
	make("done");
	step("second");
	return 42;
}
