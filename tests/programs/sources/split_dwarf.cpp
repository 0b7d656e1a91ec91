#include <string.h>
namespace app {
struct Item { long weight; char name[8]; const Item *next; };
__attribute__((noinline)) void touch() {
    __asm__ volatile("nop" : : "r"(__builtin_frame_address(0)) : "memory"); }
static inline __attribute__((always_inline)) long sum(const Item *item) { touch(); return item->weight + 30; }
__attribute__((noinline)) int handle(const Item &item, int depth, const char *label) {
    long total = sum(&item);
    return total + depth + strlen(label);
}
}
int main(int argc, char **argv) {
    app::Item last = {30, "last", 0}, first = {10, "first", &last};
    __asm__ volatile("" : : "r"(&first), "r"(&last) : "memory");
    return app::handle(first, argc, argv[0] + strlen(argv[0]) - 3) == 44 ? 0 : 1;
}
