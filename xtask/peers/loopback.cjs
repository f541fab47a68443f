// Preloaded into servers that accept a port but no address: makes them listen on 127.0.0.1 only.
const dns = require("node:dns");
const { Server } = require("node:net");

const { listen } = Server.prototype;
const { lookup } = dns;

Server.prototype.listen = function (port, ...rest) {
  const isPort = typeof port === "number" || (typeof port === "string" && /^\d+$/.test(port));
  const hasAddress = typeof rest[0] === "string";
  if (!isPort || hasAddress) {
    return listen.call(this, port, ...rest);
  }
  // A server without an address listens immediately, and many read their port in the next statement.
  // With an address it listens later, after a lookup, which is made synchronous here.
  dns.lookup = (address, _options, found) => found(null, [{ address, family: 4 }]);
  try {
    return listen.call(this, port, "127.0.0.1", ...rest);
  } finally {
    dns.lookup = lookup;
  }
};
