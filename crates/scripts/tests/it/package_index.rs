//! The package index of `deploy/compose`, in front of an index on this machine.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::json;

const SERVER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/compose/package-index/server.py");
/// Serves the files of its working folder.
const UPSTREAM: &str = "
import http.server
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
print('port', server.server_port, flush=True)
server.serve_forever()
";
/// Writes a wheel of the package `demo`.
const WHEEL: &str = "
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w') as wheel:
    wheel.writestr('demo.py', 'VALUE = 42\\n')
    info = 'demo-1.0.dist-info/'
    wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: demo\\nVersion: 1.0\\n')
    wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr(info + 'RECORD', '')
";
const FILE: &str = "demo-1.0-py3-none-any.whl";

/// A server that is killed when dropped.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    /// Starts a server that prints its port.
    fn start(command: &mut Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().strip_prefix("port ").unwrap().parse().unwrap();
        Self { process, port }
    }

    /// Sends a request and returns the response.
    fn request(&self, method: &str, path: &str) -> String {
        let mut connection = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(connection, "{method} {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut response = Vec::new();
        connection.read_to_end(&mut response).unwrap();
        String::from_utf8_lossy(&response).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the file with the metadata of the wheel, which an index serves beside it.
fn metadata(folder: &Path) -> PathBuf {
    folder.join("packages/aa").join(format!("{FILE}.metadata"))
}

/// Starts an index with the package `demo`, and the server in front of it.
fn servers(folder: &Path) -> [Server; 2] {
    let mut upstream = Command::new("python3");
    let upstream = Server::start(upstream.args(["-c", UPSTREAM]).current_dir(folder));
    let address = format!("http://127.0.0.1:{}", upstream.port);
    for name in ["simple/demo", "simple/moved", "packages/aa"] {
        fs::create_dir_all(folder.join(name)).unwrap();
    }
    let wheel = folder.join("packages/aa").join(FILE);
    let made = Command::new("python3").args(["-c", WHEEL]).arg(&wheel).status().unwrap();
    assert!(made.success());
    fs::write(metadata(folder), "Name: demo\nVersion: 1.0\nRequires-Dist: other>=1\n").unwrap();
    fs::write(folder.join("packages/secret.whl"), "x").unwrap();
    let file = |name: &str, url: String| json!({"filename": name, "url": url, "hashes": {}});
    let list = json!({"files": [
        file(FILE, format!("{address}/packages/aa/{FILE}")),
        file("demo-1.0.tar.gz", format!("{address}/packages/aa/demo-1.0.tar.gz")),
        file("demo-2.0-py3-none-any.whl", "http://elsewhere.test/packages/demo.whl".to_owned()),
        file("demo-3.0-py3-none-any.whl", format!("{address}/packages/../simple/demo.whl")),
    ]});
    fs::write(folder.join("simple/demo/index.html"), list.to_string()).unwrap();
    fs::write(folder.join("simple/moved/index.html"), "not a list").unwrap();
    let mut index = Command::new("python3");
    index.arg(SERVER).env("PORT", "0").env("PACKAGE_INDEX_URL", format!("{address}/simple"));
    [Server::start(index.env("PACKAGE_FILES_URL", format!("{address}/packages/"))), upstream]
}

#[test]
fn pip_installs_wheel_through_package_index() {
    let folder = tempfile::tempdir().unwrap();
    let [index, _upstream] = servers(folder.path());
    let target = folder.path().join("target");
    let address = format!("http://127.0.0.1:{}/simple/", index.port);
    let mut pip = Command::new("python3");
    pip.args(["-I", "-m", "pip", "install", "--only-binary=:all:", "--no-cache-dir", "--target"]);
    pip.arg(&target).args(["--index-url", &address, "demo"]).current_dir(folder.path());
    let path = std::env::var_os("PATH").unwrap();
    let output = pip.env_clear().env("PATH", path).env("HOME", folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_to_string(target.join("demo.py")).unwrap(), "VALUE = 42\n");
}

#[test]
fn package_index_forwards_only_listed_wheels() {
    let folder = tempfile::tempdir().unwrap();
    let [index, _upstream] = servers(folder.path());
    let status = |path: &str| index.request("GET", path).split(' ').nth(1).unwrap().to_owned();
    let wheel = format!("/files/aa/{FILE}");
    assert_eq!(status(&wheel), "404", "before it was listed");
    let list = index.request("GET", "/simple/demo/");
    assert!(list.starts_with("HTTP/1.0 200"), "{list}");
    assert_eq!(list.matches("\"filename\"").count(), 1, "{list}");
    assert!(list.contains(&wheel), "{list}");
    assert_eq!(status(&wheel), "200");
    for (path, expected) in [
        ("/healthz", "200"),
        ("/simple/missing/", "404"),
        ("/simple/moved/", "502"),
        ("/simple/../packages/", "404"),
        ("/simple/demo/../demo/", "404"),
        ("/simple/Demo/", "404"),
        ("/simple//demo/", "404"),
        ("/simple/demo", "404"),
        ("/files/secret.whl", "404"),
        ("/files/aa/demo-1.0.tar.gz", "404"),
        ("/", "404"),
    ] {
        assert_eq!(status(path), expected, "{path}");
    }
    assert!(index.request("POST", "/simple/demo/").contains(" 501 "));
}

#[test]
fn wheel_that_names_the_address_of_a_dependency_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [index, _upstream] = servers(folder.path());
    index.request("GET", "/simple/demo/");
    let status = || {
        let response = index.request("GET", &format!("/files/aa/{FILE}"));
        response.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(status(), "200");
    for dependency in ["x @ file:///files/x", "x[y]\n @ https://elsewhere.test/x.whl ; a > '1'"] {
        let text = format!("Name: demo\nVersion: 1.0\nRequires-Dist: {dependency}\n\nText.\n");
        fs::write(metadata(folder.path()), text).unwrap();
        assert_eq!(status(), "502", "{dependency}");
    }
    fs::remove_file(metadata(folder.path())).unwrap();
    assert_eq!(status(), "404");
}
