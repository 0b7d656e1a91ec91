// Calls a system call from compiled functions: prints its process id when they are compiled, then, for a line, calls.
using System;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;

class Order
{
    [DllImport("libc.so.6")] static extern int getsid(int pid);
    [MethodImpl(MethodImplOptions.NoInlining)] static int Leaf(int n) { return getsid(1000000 + n); }
    [MethodImpl(MethodImplOptions.NoInlining)] int Total(int n) { int sum = 0; for (int i = 0; i < 3; i++) sum += Leaf(n); return sum; }
    [MethodImpl(MethodImplOptions.NoInlining)] static int Outer(Order order, int n) { return order.Total(n) + 1; }

    static void Main()
    {
        Outer(new Order(), 1);
        Console.WriteLine(System.Diagnostics.Process.GetCurrentProcess().Id);
        Console.ReadLine();
        for (int i = 0; i < 200; i++) Outer(new Order(), i % 7);
        Console.WriteLine("done");
        Console.ReadLine();
    }
}
