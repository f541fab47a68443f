//! Ways to hide text from the readers of a page, for tests.

/// Ways to hide the word `secret`.
pub(crate) const WAYS: [&str; 22] = [
    "<!-- secret -->",
    "<p style='display:none'>secret</p>",
    "<p style='visibility:hidden'>secret</p>",
    "<p style='opacity:0'>secret</p>",
    "<p style='font-size:0'>secret</p>",
    "<p hidden>secret</p>",
    "<p hidden='until-found'>secret</p>",
    "<p aria-hidden='TRUE'>secret</p>",
    "<template><p>secret</p></template>",
    "<noscript>secret</noscript>",
    "<script type='text/plain'>secret</script>",
    "<style>p::after { content: 'secret' }</style>",
    "<div style='position:absolute;left:-9999px'><p>secret</p></div>",
    "<p style='text-indent:-9999px'>secret</p>",
    "<p style='clip:rect(0,0,0,0)'>secret</p>",
    "<div style='height:0;overflow:hidden'>secret</div>",
    "<span style='color:transparent'>secret</span>",
    "<span style='color:white;background:white'>secret</span>",
    "<img width=1 height=1 src=/p.gif alt='secret'>",
    "<dialog>secret</dialog>",
    "<input type=hidden value=secret><datalist><option>secret</datalist>",
    "<object><p>secret</p></object><canvas>secret</canvas>",
];
