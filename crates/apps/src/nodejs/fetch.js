// An HTTP server that sends back what it is sent, and a client by `fetch`.
//
//     fetch.js server ADDRESS PORT
//     fetch.js check ADDRESS PORT                  bodies of many sizes, several at once; compares
//     fetch.js rate ADDRESS PORT SECONDS small     bodies of 4 KB, 8 under way
//
// `rate` prints one line of JSON: what was counted, and in how many seconds.
'use strict';
const http = require('http');
const crypto = require('crypto');
const [, , role, address, port, seconds] = process.argv;
const url = `http://${address.includes(':') ? `[${address}]` : address}:${port}/`;

function serve() {
  const server = http.createServer((request, response) => {
    response.setHeader('Content-Type', 'application/octet-stream');
    request.pipe(response);
  });
  server.listen(Number(port), address);
  process.on('SIGTERM', () => process.exit(0));
}

async function ask(body) {
  const response = await fetch(url, { method: 'POST', body });
  const got = Buffer.from(await response.arrayBuffer());
  if (!got.equals(body)) throw new Error(`${body.length} bytes were sent, ${got.length} others came`);
  return body.length;
}

async function check() {
  const sizes = [1, 100, 4096, 65537, 1000003, 20000000];
  let total = 0;
  for (const size of sizes) total += await ask(crypto.randomBytes(size));
  const many = Array.from({ length: 200 }, (_, step) => ask(crypto.randomBytes(1 + 97 * step)));
  total += (await Promise.all(many)).reduce((sum, bytes) => sum + bytes, 0);
  console.log(total);
}

async function rate() {
  const body = crypto.randomBytes(4096);
  await ask(body);
  const begin = performance.now();
  const end = begin + 1000 * Number(seconds);
  let count = 0;
  await Promise.all(Array.from({ length: 8 }, async () => {
    while (performance.now() < end) {
      await ask(body);
      count += 1;
    }
  }));
  console.log(JSON.stringify({ count, seconds: (performance.now() - begin) / 1000 }));
}

function failed(error) {
  console.error(error);
  process.exit(1);
}

if (role === 'server') serve();
else (role === 'check' ? check() : rate()).then(() => process.exit(0), failed);
