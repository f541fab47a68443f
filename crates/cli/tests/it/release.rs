//! Metadata for `cargo binstall`.

use std::{fs, path::Path};

use crate::sandbox::assert_contains;

/// Returns a template of the metadata with the values of a release.
fn filled(template: &toml::Value) -> String {
    let mut text = template.as_str().expect("text").to_owned();
    for (name, value) in [
        ("repo", "REPOSITORY"),
        ("version", "1.2.3"),
        ("target", "TARGET"),
        ("bin", "rockbot"),
        ("binary-ext", ""),
    ] {
        text = text.replace(&format!("{{ {name} }}"), value);
    }
    assert!(!text.contains('{'), "an unknown placeholder: {text}");
    text
}

#[test]
fn binstall_downloads_the_archives_of_a_release() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(package.join("Cargo.toml")).expect("a manifest");
    let manifest: toml::Table = toml::from_str(&manifest).expect("TOML");
    let metadata = &manifest["package"]["metadata"]["binstall"];
    let release = package.join("../../.github/workflows/release.yaml");
    let release = fs::read_to_string(release).expect("a workflow");

    let folder =
        release.lines().find_map(|line| line.trim().strip_prefix("folder=\"")?.strip_suffix('"'));
    let folder = folder.expect("a folder for the archive");
    let folder =
        folder.replace("${GITHUB_REF_NAME#v}", "1.2.3").replace("${{ matrix.target }}", "TARGET");
    assert_contains(
        &release,
        &[
            "tar czf \"$folder.tar.gz\" \"$folder\"",
            "-name 'rockbot*' -exec cp {} \"$folder\"",
            "gh release create \"$GITHUB_REF_NAME\"",
            "rockbot-*.tar.gz*",
        ],
    );
    assert_eq!(filled(&metadata["bin-dir"]), format!("{folder}/rockbot"));
    let url = format!("REPOSITORY/releases/download/v1.2.3/{folder}.tar.gz");
    assert_eq!(filled(&metadata["pkg-url"]), url);
    assert_eq!(metadata["pkg-fmt"].as_str(), Some("tgz"));
}
