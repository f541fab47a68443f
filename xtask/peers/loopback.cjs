// Loaded before a server that takes a port and no address: it listens on this machine only.
const { Server } = require("node:net");

const listen = Server.prototype.listen;

Server.prototype.listen = function (port, ...rest) {
  const isPort = typeof port === "number" || (typeof port === "string" && /^\d+$/.test(port));
  const hasAddress = typeof rest[0] === "string";
  return listen.call(this, port, ...(isPort && !hasAddress ? ["127.0.0.1"] : []), ...rest);
};
