// server: an HTTP server whose handlers compute. Prints its process id; for a line with a number it asks itself as often,
// and prints the stacks in which it computed, as V8 has them: lists of functions, innermost first.
'use strict';
const http = require('http');

Error.stackTraceLimit = 100;
Error.prepareStackTrace = (_, sites) =>
  sites.filter(site => site.getFileName() && !site.isAsync()).map(site => site.getFunctionName() || '');
const stacks = new Set();

function burn(rounds) {
  stacks.add(JSON.stringify(new Error().stack));
  let sum = 0;
  for (let i = 0; i < rounds * 200000; i++) sum = (sum * 31 + i) % 1000003;
  return sum;
}

class Shop {
  constructor() { this.sum = burn(1); }
  get price() { return burn(1) + this.sum; }
  total() { return [3, 1, 2].sort((a, b) => { if (a === 1) burn(1); return a - b; }); }
  static open() { return new Shop(); }
}
function deep(n) { return n ? deep(n - 1) + 1 : burn(2); }
function* parts() { yield 1; burn(1); yield 2; }
async function later() { await null; burn(1); await new Promise(resolve => setImmediate(resolve)); burn(1); }

const routes = {
  '/deep': function handleDeep() { return deep(5); },
  '/price': function handlePrice() { return Shop.open().price; },
  '/total': function handleTotal() { return new Shop().total(); },
  '/parts': function handleParts() { return [...parts()]; },
  '/json': function handleJson() { return JSON.stringify({ toJSON() { return burn(1); } }); },
  '/replace': function handleReplace() { return 'abc'.replace(/b/, () => String(burn(1))); },
  '/later': function handleLater() { later(); },
};
const paths = Object.keys(routes);
const server = http.createServer(function onRequest(request, response) {
  routes[request.url]();
  response.end('done');
});

function ask(agent, left) {
  if (!left) {
    setImmediate(() => process.stdout.write(JSON.stringify([...stacks].map(JSON.parse)) + '\n', () => process.exit(0)));
    return;
  }
  const options = { port: server.address().port, host: '127.0.0.1', path: paths[left % paths.length], agent };
  http.get(options, response => { response.resume(); response.on('end', () => ask(agent, left - 1)); });
}

server.listen(0, '127.0.0.1', () => {
  console.log(process.pid);
  process.stdin.once('data', text => ask(new http.Agent({ keepAlive: true }), Number(text)));
});
