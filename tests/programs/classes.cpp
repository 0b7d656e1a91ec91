// classes [TIMES]: calls methods, overloads and template functions TIMES times (10).
#include <cstdlib>
#include <string>

namespace zoo {
class Animal {
  public:
    explicit Animal(int legs) : legs(legs) {}
    virtual ~Animal() {}
    virtual int walk(int steps) { return steps * legs; }
    int walk(const std::string &place) { return static_cast<int>(place.size()) * legs; }

  private:
    int legs;
};
template <typename T> T twice(T value) { return value + value; }
} // namespace zoo

int main(int argc, char **argv) {
    int times = argc > 1 ? atoi(argv[1]) : 10;
    volatile long total = 0;
    zoo::Animal cat(4);
    for (int n = 0; n < times; n++)
        total += cat.walk(n) + cat.walk(std::string("here")) + zoo::twice(n) + zoo::twice(static_cast<long>(n));
    return 0;
}
