/* For tests/kernel/test_memory_images.py. */
#include <dlfcn.h>
#include <stdlib.h>
/* COUNT SECONDS LIBRARY LIBRARY: loads them in turn, calls the library, and unloads it. */
int main(int argc, char **argv)
{
    for (int i = 0; i < atoi(argv[1]); i++) {
        void *library = dlopen(argv[3 + i % 2], RTLD_NOW);
        ((void (*)(double))dlsym(library, "entry"))(atof(argv[2]));
        dlclose(library);
    }
    return 0;
}
