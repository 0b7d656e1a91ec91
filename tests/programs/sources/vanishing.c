/* For tests/kernel/test_symbols.py. */
#include <stdlib.h>
#include <time.h>
__attribute__((noinline)) int spin(long nanoseconds) {
  struct timespec now, begun;
  int turns = 0;
  clock_gettime(CLOCK_MONOTONIC, &begun);
  do { clock_gettime(CLOCK_MONOTONIC, &now); turns++; }
  while ((now.tv_sec - begun.tv_sec) * 1000000000 + now.tv_nsec - begun.tv_nsec < nanoseconds);
  return turns;
}
int main(int count, char **words) { return spin(atol(words[1]) * 100000) < 0; }
