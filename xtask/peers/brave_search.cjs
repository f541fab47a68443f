// Preloaded into Brave's MCP server, which knows one address: its requests go to BRAVE_BASE_URL instead.
const base = process.env.BRAVE_BASE_URL;
const { fetch } = globalThis;

globalThis.fetch = (url, options) => {
  if (!base) throw new Error("BRAVE_BASE_URL is not set");
  return fetch(String(url).replace("https://api.search.brave.com", base), options);
};
