//! PDF documents made by hand.

use flate2::{Compress, Compression, FlushCompress};

/// A document under construction. Object 1 is the catalog, object 2 the tree of pages, object 3 a font.
pub(crate) struct Pdf {
    objects: Vec<Vec<u8>>,
    trailer: String,
}

impl Pdf {
    /// Creates a document whose tree of pages has these kids, for example `4 0 R 5 0 R`.
    pub(crate) fn with_kids(kids: &str) -> Self {
        let count = kids.matches(" R").count();
        let mut pdf = Self { objects: Vec::new(), trailer: String::new() };
        pdf.push("<< /Type /Catalog /Pages 2 0 R >>");
        pdf.push(&format!(
            "<< /Type /Pages /Kids [{kids}] /Count {count} /MediaBox [0 0 612 792] \
             /Resources << /Font << /F1 3 0 R >> >> >>"
        ));
        pdf.push(
            "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        );
        pdf
    }

    /// Creates a document with a page for each text.
    pub(crate) fn with_pages(texts: &[&str]) -> Self {
        let kids: Vec<_> = (0..texts.len()).map(|page| format!("{} 0 R", 4 + 2 * page)).collect();
        let mut pdf = Self::with_kids(&kids.join(" "));
        for text in texts {
            pdf.push_page("");
            pdf.push_stream("", format!("BT /F1 12 Tf 72 720 Td ({text}) Tj ET").as_bytes());
        }
        pdf
    }

    /// Adds an object and returns its number.
    pub(crate) fn push(&mut self, object: &str) -> usize {
        self.objects.push(object.as_bytes().to_vec());
        self.objects.len()
    }

    /// Adds a page with the next object as its content.
    pub(crate) fn push_page(&mut self, entries: &str) -> usize {
        let content = self.objects.len() + 2;
        self.push(&format!("<< /Type /Page /Parent 2 0 R /Contents {content} 0 R {entries} >>"))
    }

    pub(crate) fn push_stream(&mut self, entries: &str, content: &[u8]) -> usize {
        let mut object =
            format!("<< /Length {} {entries} >>\nstream\n", content.len()).into_bytes();
        object.extend(content);
        object.extend(b"\nendstream");
        self.objects.push(object);
        self.objects.len()
    }

    /// Adds a compressed stream of `size` bytes: `piece`, repeated.
    pub(crate) fn push_compressed(&mut self, piece: &str, size: usize) -> usize {
        let piece = piece.repeat(1024 * 1024 / piece.len());
        // After a full flush, the compressed block does not depend on what precedes it.
        let mut block = Vec::with_capacity(64 * 1024);
        let mut deflate = Compress::new(Compression::best(), false);
        deflate.compress_vec(piece.as_bytes(), &mut block, FlushCompress::Full).unwrap();
        let mut content = vec![0x78, 0xda];
        content.extend(block.repeat(size / piece.len()));
        self.push_stream("/Filter /FlateDecode", &content)
    }

    pub(crate) fn with_trailer(mut self, entries: &str) -> Self {
        entries.clone_into(&mut self.trailer);
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut file = b"%PDF-1.7\n".to_vec();
        let mut offsets = Vec::new();
        for (index, object) in self.objects.iter().enumerate() {
            offsets.push(file.len());
            file.extend(format!("{} 0 obj\n", index + 1).as_bytes());
            file.extend(object);
            file.extend(b"\nendobj\n");
        }
        let table = file.len();
        let size = offsets.len() + 1;
        file.extend(format!("xref\n0 {size}\n0000000000 65535 f \n").as_bytes());
        for offset in offsets {
            file.extend(format!("{offset:010} 00000 n \n").as_bytes());
        }
        let trailer = &self.trailer;
        file.extend(
            format!(
                "trailer\n<< /Size {size} /Root 1 0 R {trailer} >>\nstartxref\n{table}\n%%EOF\n"
            )
            .as_bytes(),
        );
        file
    }
}
