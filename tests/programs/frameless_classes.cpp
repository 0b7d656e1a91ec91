// A chain of calls through templates, virtual functions and a standard algorithm, without frame pointers.
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <unistd.h>
#include <vector>

static volatile int sink;

struct Shape {
    virtual ~Shape() = default;
    virtual int area(int scale) const = 0;
};

struct Square : Shape {
    int area(int scale) const override
    {
        long result;
        __asm__ volatile("syscall" : "=a"(result) : "0"(110L) : "rcx", "r11", "memory");
        return scale + static_cast<int>(result) + sink;
    }
};

template <typename T> int measure(const std::vector<std::unique_ptr<T>> &all)
{
    int total = 0;
    for (const auto &item : all)
        total += item->area(3) + sink;
    if (total == -1)
        throw std::runtime_error("negative");
    return total;
}

int guarded(const std::vector<std::unique_ptr<Shape>> &all)
{
    try {
        return measure<Shape>(all) + sink;
    } catch (const std::exception &) {
        return 0;
    }
}

int main()
{
    std::vector<std::unique_ptr<Shape>> all;
    all.push_back(std::make_unique<Square>());
    sink = guarded(all);
    return 0;
}
