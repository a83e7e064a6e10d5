/* Says who it runs as. */
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	printf("uid %d euid %d\n", getuid(), geteuid());
	return 42;
}
