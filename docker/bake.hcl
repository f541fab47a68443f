# All images at once, as a release publishes them:
#
#   VERSION=0.1.0 REVISION=$(git rev-parse HEAD) docker buildx bake --file docker/bake.hcl --push

variable "REGISTRY" {
  default = "ghcr.io/rockbot"
}

variable "VERSION" {
  default = "0.1.0"
}

variable "REVISION" {
  default = "unknown"
}

variable "PROFILE" {
  default = "release"
}

group "default" {
  targets = ["images"]
}

target "images" {
  name = program
  matrix = {
    program = [
      "rockbot",
      "rockbot-agent",
      "rockbot-mcp-bridge",
      "rockbot-openrouter-mcp",
      "rockbot-scripts-manager",
      "rockbot-tool-handler",
    ]
  }
  context    = "."
  dockerfile = "docker/Dockerfile"
  target     = program
  tags       = ["${REGISTRY}/${program}:${VERSION}"]
  platforms  = ["linux/amd64", "linux/arm64"]
  args = {
    PROFILE  = PROFILE
    REVISION = REVISION
    VERSION  = VERSION
  }
  # What is in the image, and how it was made, beside it in the registry. The crates are in the
  # programs themselves.
  attest = ["type=sbom", "type=provenance,mode=max"]
}
