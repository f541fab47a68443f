//! The guide of the file tools for models.

use rockbot_toolkit::files::{self, FilesConfig, GUIDE};

#[test]
fn guide_mentions_every_tool() {
    let folder = tempfile::tempdir().unwrap();
    let tools = files::tools(&FilesConfig::new(folder.path())).unwrap();
    assert_eq!(GUIDE.validate(tools.iter().map(|tool| tool.registration())), [""; 0]);
    let missing = tools.iter().find(|tool| !GUIDE.markdown.contains(&tool.registration().name));
    assert!(
        missing.is_none(),
        "the guide does not mention {:?}",
        missing.map(|tool| tool.registration())
    );
}
