/* For tests/runtime/binaries/test_units.py. */
#include <string>
#include <map>
namespace zoo { struct Cat { std::string name; const int legs = 4; int walk(int n) const; }; }
int zoo::Cat::walk(int n) const { static const char *says = "miau"; return n * legs + says[n % 4]; }
int main(int argc, char **argv) {
    std::map<std::string, zoo::Cat> cats;
    for (int number = 0; number < argc; number++) { cats[argv[number]].walk(number); }
    return (int)cats.size();
}
