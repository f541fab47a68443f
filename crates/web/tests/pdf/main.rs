//! PDF documents, read by the real child process.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod document;

use std::time::Duration;

use document::Pdf;
use rockbot_web::pdf::{PdfFailure, PdfProcess};
use tokio::time::Instant;

fn reader() -> PdfProcess {
    PdfProcess::new(env!("CARGO_BIN_EXE_rockbot-read-pdf").into())
}

async fn read(pdf: &Pdf) -> Result<String, PdfFailure> {
    reader().read(pdf.bytes(), Instant::now() + Duration::from_secs(60)).await
}

#[tokio::test]
async fn pages_are_returned_with_their_numbers() {
    let text = read(&Pdf::with_pages(&["Hello, world", "Second page"])).await.unwrap();
    assert_eq!(text, "--- page 1 ---\nHello, world\n\n--- page 2 ---\nSecond page\n\n");
}

#[tokio::test]
async fn pages_above_the_limit_are_counted() {
    let texts = vec!["text"; 310];
    let text = read(&Pdf::with_pages(&texts)).await.unwrap();
    assert!(text.contains("--- page 300 ---") && !text.contains("--- page 301 ---"));
    assert!(text.ends_with("--- 10 more pages are not read ---\n"), "{text}");
}

#[tokio::test]
async fn long_text_is_cut() {
    let line = "x".repeat(600_000);
    let text = read(&Pdf::with_pages(&[&line, &line, "last"])).await.unwrap();
    assert!(text.len() <= 1024 * 1024 + 200, "{}", text.len());
    assert!(text.contains("--- the text of page 2 is cut here ---"));
}

#[tokio::test]
async fn document_without_text_is_reported() {
    let mut pdf = Pdf::with_kids("4 0 R");
    pdf.push_page("");
    pdf.push_stream("", b"0 0 10 10 re f");
    assert!(matches!(read(&pdf).await, Err(PdfFailure::NoText)));
}

#[tokio::test]
async fn unreadable_documents_are_damaged() {
    let whole = Pdf::with_pages(&["text"]).bytes();
    let deadline = Instant::now() + Duration::from_secs(60);
    for document in [Vec::new(), b"<html>".to_vec(), whole[..whole.len() / 3].to_vec()] {
        let size = document.len();
        let error = reader().read(document, deadline).await;
        assert!(matches!(error, Err(PdfFailure::Damaged)), "{size}: {error:?}");
    }
}

#[tokio::test]
async fn damaged_page_does_not_affect_others() {
    let mut pdf = Pdf::with_kids("4 0 R 6 0 R");
    // The parser panics without a valid media box.
    pdf.push_page("/MediaBox [0]");
    pdf.push_stream("", b"BT /F1 12 Tf (first) Tj ET");
    pdf.push_page("");
    pdf.push_stream("", b"BT /F1 12 Tf (second) Tj ET");
    let text = read(&pdf).await.unwrap();
    assert!(text.contains("page 1 ---\n(the rest of this page cannot be read)"), "{text}");
    assert!(text.contains("page 2 ---\nsecond"), "{text}");
}

#[tokio::test]
async fn document_with_password_is_protected() {
    let filler = "00".repeat(32);
    let mut pdf = Pdf::with_pages(&["secret"]);
    let encrypt = pdf.push(&format!(
        "<< /Filter /Standard /V 2 /R 3 /Length 128 /P -44 /O <{filler}> /U <{filler}> >>"
    ));
    let id = "<00112233445566778899aabbccddeeff>";
    let pdf = pdf.with_trailer(&format!("/Encrypt {encrypt} 0 R /ID [{id} {id}]"));
    let error = read(&pdf).await;
    assert!(matches!(error, Err(PdfFailure::Protected)), "{error:?}");
}

#[tokio::test]
async fn endless_recursion_ends_the_child_only() {
    // A tree of pages that contains itself.
    let tree = read(&Pdf::with_kids("2 0 R")).await;
    assert!(matches!(tree, Err(PdfFailure::Damaged | PdfFailure::TooComplex)), "{tree:?}");

    // A page that inherits from itself.
    let mut pdf = Pdf::with_kids("4 0 R");
    pdf.push("<< /Type /Page /Parent 4 0 R /Contents 5 0 R >>");
    pdf.push_stream("", b"BT /F1 12 Tf (text) Tj ET");
    let parents = read(&pdf).await;
    assert!(matches!(parents, Err(PdfFailure::TooComplex)), "{parents:?}");

    // A form that draws itself, after a readable page.
    let mut pdf = Pdf::with_kids("4 0 R 6 0 R");
    pdf.push_page("");
    pdf.push_stream("", b"BT /F1 12 Tf (kept) Tj ET");
    pdf.push_page("/Resources << /XObject << /X 8 0 R >> >>");
    pdf.push_stream("", b"/X Do");
    pdf.push_stream(
        "/Type /XObject /Subtype /Form /BBox [0 0 1 1] /Resources << /XObject << /X 8 0 R >> >>",
        b"/X Do",
    );
    let forms = read(&pdf).await.unwrap();
    assert!(forms.starts_with("--- page 1 ---\nkept\n"), "{forms}");
    assert!(forms.contains("--- the next page needs too much memory or time ---"), "{forms}");
}

#[tokio::test]
async fn document_that_expands_beyond_its_memory_is_too_complex() {
    let mut pdf = Pdf::with_kids("4 0 R");
    pdf.push_page("");
    pdf.push_compressed("    ", 640 * 1024 * 1024);
    assert!(pdf.bytes().len() < 16 * 1024 * 1024);
    let error = read(&pdf).await;
    assert!(matches!(error, Err(PdfFailure::TooComplex)), "{error:?}");
}

#[tokio::test]
async fn reading_ends_at_the_deadline() {
    let mut pdf = Pdf::with_kids("4 0 R");
    pdf.push_page("");
    pdf.push_compressed("q Q ", 64 * 1024 * 1024);
    let error = reader().read(pdf.bytes(), Instant::now() + Duration::from_millis(300)).await;
    assert!(matches!(error, Err(PdfFailure::TimedOut)), "{error:?}");
}

#[tokio::test]
async fn oversized_document_starts_no_child() {
    let absent = PdfProcess::new("/no/such/program".into());
    let deadline = Instant::now() + Duration::from_secs(60);
    let error = absent.read(vec![0; 16 * 1024 * 1024 + 1], deadline).await;
    assert!(matches!(error, Err(PdfFailure::TooLarge { .. })), "{error:?}");
    let error = absent.read(Vec::new(), deadline).await;
    assert!(matches!(error, Err(PdfFailure::Process(_))), "{error:?}");
}

/// An upgrade deletes the file of a program that runs.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn program_without_its_file_starts_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("deleted");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let mut command = tokio::process::Command::new(&copy);
    command.args(["--exact", "deleted_program_is_started", "--nocapture"]);
    let output = command.output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    assert!(!copy.exists());
}

/// Runs in the copy that the test above makes.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn deleted_program_is_started() {
    let program = std::env::current_exe().unwrap();
    if program.file_name().unwrap() != "deleted" {
        return;
    }
    std::fs::remove_file(program).unwrap();
    let reader = PdfProcess::current_program().unwrap();
    let error = reader.read(Vec::new(), Instant::now() + Duration::from_secs(60)).await;
    // The test program does not know the argument of the reader: it ran, and ended with an error.
    let Err(PdfFailure::Process(error)) = error else { panic!("{error:?}") };
    assert!(error.to_string().contains("ended with code"), "{error}");
}
