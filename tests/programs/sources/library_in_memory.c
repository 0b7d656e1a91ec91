/* For tests/kernel/test_memory_images.py. */
#include <sys/syscall.h>
#include <unistd.h>
__attribute__((noinline)) static void ask(void) { usleep(5000); syscall(SYS_getsid, 0); __asm__ volatile(""); }
void in_library(void) { ask(); __asm__ volatile(""); }
