"""Writes a package index with one package, whose module has the value 42, as files for an HTTP server.

Arguments: the folder, the URL of the server, and the name of the package.
"""

import json, os, sys, zipfile

folder, url, package = sys.argv[1:]
module = package.replace("-", "_")
wheel = f"{module}-1.0-py3-none-any.whl"
metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"

os.umask(0o022)
for path in (f"simple/{package}", "files"):
    os.makedirs(os.path.join(folder, path))
with zipfile.ZipFile(os.path.join(folder, "files", wheel), "w") as file:
    info = f"{module}-1.0.dist-info/"
    file.writestr(f"{module}.py", "VALUE = 42\n")
    file.writestr(info + "METADATA", metadata)
    file.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    file.writestr(info + "RECORD", "")
listed = {"files": [{"filename": wheel, "url": f"{url}/files/{wheel}", "hashes": {}}]}
for path, text in {
    f"files/{wheel}.metadata": metadata,
    f"simple/{package}/index.html": json.dumps(listed),
    "healthz": "ok\n",
}.items():
    with open(os.path.join(folder, path), "w") as file:
        file.write(text)
