/* usdt [TIMES]: passes each USDT probe TIMES times (10).
 *
 *   sample:plain()   sample:one(round)   sample:four(-round, 1 << 40 + round, "text N", 42)
 *   sample:guarded(round), only while its semaphore is raised; prints how often it was at the end.
 * usdt TIMES wait: reads a line from standard input first. */
#include <stdio.h>
#include <stdlib.h>

#include "probes.h"

PROBE_SEMAPHORE(sample_guarded_semaphore);

void pass(int round) {
    char text[32];
    snprintf(text, sizeof text, "text %d", round);
    PROBE0("sample", "plain");
    PROBE1("sample", "one", round);
    PROBE4("sample", "four", -round, (1UL << 40) + round, text, 42);
}

int main(int argc, char **argv) {
    int times = argc > 1 ? atoi(argv[1]) : 10;
    int guarded = 0;
    if (argc > 2)
        getchar();
    for (int round = 0; round < times; round++) {
        pass(round);
        if (sample_guarded_semaphore) {
            guarded++;
            PROBE1_SEMAPHORE("sample", "guarded", sample_guarded_semaphore, round);
        }
    }
    printf("guarded %d\n", guarded);
    return 0;
}
