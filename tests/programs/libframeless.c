/* Calls back what it is given, from code without frame pointers. */

int visit(int (*function)(int), int value)
{
    volatile char room[300];
    room[value & 63] = (char)value;
    return function(value) + room[1];
}
