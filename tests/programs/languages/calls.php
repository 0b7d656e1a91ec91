<?php
// Calls a system call from compiled functions: prints its process id, then, for a line, calls. With an argument it calls at once, until it is killed.
function leaf(int $n): int { posix_getsid(1000000 + $n); return $n; }
class Order { function total(int $n): int { $sum = 0; for ($i = 0; $i < 3; $i++) { $sum += leaf($n); } return $sum; } }
function outer(Order $order, int $n): int { return $order->total($n) + 1; }
outer(new Order, 1);
while ($argc > 1) { outer(new Order, 1); }
echo getmypid(), "\n";
fgets(STDIN);
for ($i = 0; $i < 200; $i++) { outer(new Order, $i % 7); }
echo "done\n";
fgets(STDIN);
