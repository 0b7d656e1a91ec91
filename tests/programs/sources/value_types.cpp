/* For tests/runtime/binaries/test_value_types.py. */
#include <stddef.h>
typedef int number;
enum colour { RED, BLUE = 7 };
enum level { LOW = -1, HIGH };
class Base { public: int base; };
class Derived : public Base { public: static int shared; int own; unsigned low : 3, high : 7; };
union either { int a; char b; };
struct outer { int x; struct { long deep; }; union either u; struct outer *next; };
const volatile number a1 = 1; char a2[16]; signed char a3[4]; unsigned char a4[4]; int a5[2][3]; double a6; float a7;
bool a8; short a9; unsigned long a10; long double a11; const char *a12; char a13; colour a14; level a15;
int (*a16)(int); struct outer a17; Derived a18; __int128 a19; decltype(nullptr) a20; int Base::*a21;
char *const a22 = 0;
extern int &a23; number a24 = 5; int &a23 = a24; unsigned char a25; void *a26;
int Derived::shared; char a29[2][4];
int main() { return a1; }
