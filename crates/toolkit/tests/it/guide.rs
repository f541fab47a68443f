//! What models are told of the tools beside their definitions.

use rockbot_toolkit::files::{self, FilesConfig};
use rockbot_tools::guides::FILES;

#[test]
fn the_guide_is_short_and_mentions_what_exists() {
    let folder = tempfile::tempdir().unwrap();
    let tools = files::tools(&FilesConfig::new(folder.path())).unwrap();
    assert_eq!(FILES.problems(tools.iter().map(|tool| tool.registration())), [""; 0]);
    let missing = tools.iter().find(|tool| !FILES.markdown.contains(&tool.registration().name));
    assert!(
        missing.is_none(),
        "the guide says nothing of {:?}",
        missing.map(|tool| tool.registration())
    );
}
