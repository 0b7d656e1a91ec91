/* For tests/kernel/test_user_memory.py. */
typedef unsigned long size_t;
namespace std { inline namespace __1 {
template <class C> struct char_traits {};
template <class C> struct allocator {};
template <class V> struct __compressed_pair_elem { V __value_; };
template <class C, class T = char_traits<C>, class A = allocator<C>> struct basic_string {
#if LAYOUT == 0
    struct __long { size_t __cap_; size_t __size_; C *__data_; };
    struct __short { union { unsigned char __size_; C __lx; }; C __data_[23]; };
#elif LAYOUT == 1
    struct __long { struct { size_t __is_long_ : 1; size_t __cap_ : 63; }; size_t __size_; C *__data_; };
    struct __short { struct { unsigned char __is_long_ : 1; unsigned char __size_ : 7; }; C __data_[23]; };
#else
    struct __long { C *__data_; size_t __size_; size_t __cap_ : 63; size_t __is_long_ : 1; };
    struct __short { C __data_[23]; unsigned char __size_ : 7; unsigned char __is_long_ : 1; };
#endif
    struct __rep { union { __short __s; __long __l; }; };
#if LAYOUT == 0
    struct __pair : __compressed_pair_elem<__rep> {};
    __pair __r_;
    __rep &rep() { return __r_.__value_; }
#else
    __rep __rep_;
    __rep &rep() { return __rep_; }
#endif
    basic_string(const C *text, size_t size, bool large) {
        rep() = __rep();
        if (large) {
            rep().__l.__data_ = (C *)text; rep().__l.__size_ = size;
#if LAYOUT == 0
            rep().__l.__cap_ = 48 | 1;
#else
            rep().__l.__cap_ = 24; rep().__l.__is_long_ = 1;
#endif
        } else {
            for (size_t i = 0; i < size; i++) rep().__s.__data_[i] = text[i];
#if LAYOUT == 0
            rep().__s.__size_ = size << 1;
#else
            rep().__s.__size_ = size;
#endif
        }
    }
    basic_string(const basic_string &other) { rep() = ((basic_string &)other).rep(); }
};
typedef basic_string<char> string;
} }
struct QChar { unsigned short ucs; };
struct QStringView { long m_size; const QChar *m_data; };
struct Holder { int n; std::string name; };
__attribute__((noinline)) int work(const std::string &s, std::string v, std::string *p, Holder *h, QStringView q) {
    return h->n;
}
int main() {
    const char *text = "a long text that does not fit into the object";
    std::string s("short", 5, false), l(text, 45, true), e("", 0, false);
    std::string most("twenty-two characters..", 22, false);
    Holder h{5, most};
    return work(s, l, &e, &h, QStringView{0, 0}) == 0;
}
