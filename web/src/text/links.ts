/** Targets of links in untrusted text. */

/** A link that may be followed by a click. */
export interface SafeLink {
  /** Normalized target. */
  href: string;
  /** Host, or address of a `mailto` link. It is shown beside the text, which may claim another one. */
  host: string;
}

const MAX_LENGTH = 2048;

/** Returns the target if it is an absolute `http`, `https` or `mailto` address without credentials. */
export function safeLink(target: string): SafeLink | null {
  if (target.length > MAX_LENGTH) {
    return null;
  }
  let url: URL;
  try {
    url = new URL(target.trim());
  } catch {
    return null;
  }
  if (url.username !== "" || url.password !== "") {
    return null;
  }
  switch (url.protocol) {
    case "http:":
    case "https:":
      return { href: url.href, host: url.host };
    case "mailto:":
      return { href: url.href, host: url.pathname.slice(0, 128) };
    default:
      return null;
  }
}
