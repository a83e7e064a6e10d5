/* A program without a loader. */
#include <unistd.h>

int main(void)
{
	return write(1, "static\n", 7) == 7 ? 42 : 1;
}
