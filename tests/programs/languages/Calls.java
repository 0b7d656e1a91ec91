/** Calls a system call from compiled functions: prints its process id when they are compiled, then, for a line, calls. */
class Calls {
    private static final java.io.File FILE = new java.io.File("/calls");
    private static int leaf(int n) { return FILE.canExecute() ? 1 : n; }
    private int total(int n) { int sum = 0; for (int i = 0; i < 3; i++) sum += leaf(n); return sum; }
    private static int outer(Calls calls, int n) { return calls.total(n) + 1; }
    private static int work(int times) { int sum = 0; for (int i = 0; i < times; i++) sum += outer(new Calls(), i % 7); return sum; }
    public static void main(String[] arguments) throws java.io.IOException {
        for (int i = 0; i < 3000; i++) work(1);
        System.out.println(ProcessHandle.current().pid());
        System.in.read();
        for (int i = 0; i < 200; i++) work(1);
        System.out.println("done");
        System.in.read();
    }
}
