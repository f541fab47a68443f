// Loaded before a server that takes a port and no address: it listens on this machine only.
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
  // A server without an address listens at once, and many ask for their port in the next line. One
  // with an address listens later, because addresses are looked up: this one needs none of that.
  dns.lookup = (address, _options, found) => found(null, [{ address, family: 4 }]);
  try {
    return listen.call(this, port, "127.0.0.1", ...rest);
  } finally {
    dns.lookup = lookup;
  }
};
