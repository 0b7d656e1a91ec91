# Calls a system call from compiled functions: prints its process id when they are compiled, then, for a line, calls.
def leaf(n) = (Process.getsid(0); n)
class Order
  def total(n) = leaf(n) + leaf(n) + leaf(n)
end
def outer(order, n) = order.total(n) + 1
20.times { outer(Order.new, 7) }
puts Process.pid
$stdout.flush
gets
200.times { outer(Order.new, 7) }
puts "done"
$stdout.flush
gets
