/* Executes a program by one of the ways to name it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __x86_64__
/* The entry of 32-bit programs, which 64-bit ones may use too; all that it is given must lie in the first 4 GiB. */
static long compat(long number, long a, long b, long c, long d, long e)
{
	long result;
	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
			 : "memory", "r8", "r9", "r10", "r11");
	return result;
}
#endif

int main(int count, char **words)
{
	char path[64];
	if (count < 3)
		return 1;
	const char *way = words[1];
	char *argv[] = {words[2], NULL}, *environment[] = {NULL};
	int file = open(words[2], O_PATH);
	if (!strcmp(way, "proc")) {
		snprintf(path, sizeof path, "/proc/self/fd/%d", file);
		execve(path, argv, environment);
	} else if (!strcmp(way, "thread")) {
		snprintf(path, sizeof path, "/proc/thread-self/fd/%d", file);
		execve(path, argv, environment);
	} else if (!strcmp(way, "dev")) {
		snprintf(path, sizeof path, "/dev/fd/%d", file);
		execve(path, argv, environment);
	} else if (!strcmp(way, "root")) {
		char *long_path;
		if (asprintf(&long_path, "/proc/self/root/%s", words[2]) > 0)
			execve(long_path, argv, environment);
	} else if (!strcmp(way, "empty")) {
		syscall(SYS_execveat, file, "", argv, environment, AT_EMPTY_PATH);
#ifdef __x86_64__
	} else if (!strncmp(way, "compat", 6)) {
		char *low = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
		unsigned *list = (unsigned *)low;
		char *text = low + 4096;
		list[0] = (unsigned)(long)text;
		strcpy(text, words[2]);
		if (!strcmp(way, "compat"))
			compat(11, (long)text, (long)list, (long)(list + 1), 0, 0);
		else
			compat(358, file, (long)(text + strlen(text)), (long)list, (long)(list + 1), AT_EMPTY_PATH);
#endif
	} else {
		execve(words[2], argv, environment);
	}
	perror(way);
	return 2;
}
