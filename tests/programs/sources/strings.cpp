/* For tests/kernel/test_user_memory.py. */
#include <string>
#include <string_view>
struct Other { int n; const char *title; std::string more; };
struct Holder { int n; std::string name; std::string_view view; Other other; };
int work(const std::string &s, std::string v, std::string_view w, std::string *p, std::string_view &r, Holder *h) {
    return (int)(s.size() + v.size() + w.size() + p->size() + r.size()) + h->n;
}
int main() {
    std::string s("short"), l("a long text that does not fit into the object");
    std::string_view view("ref");
    Holder h{5, l, view, {1, "title", s}};
    return work(s, l, std::string_view("hello world").substr(0, 5), &l, view, &h) == 0;
}
