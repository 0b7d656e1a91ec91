/* For tests/kernel/test_symbols.py. */
struct place { int x; };
int twice(int amount, struct place *where) { return amount * 2 + where->x; }
int (*volatile pointer)(int, struct place *) = twice;
int main(int count, char **words) {
    struct place place = {count + 40};
    return pointer(count, &place) + twice(count, &place) == 1;
}
