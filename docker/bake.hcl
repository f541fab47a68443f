# Builds all images and pushes them to a registry:
#
#   REGISTRY=registry.example.org/rockbot VERSION=0.1.0 REVISION=$(git rev-parse HEAD) docker buildx bake --file docker/bake.hcl --push

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
      "rockbot-gateway",
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
  # Attestations in the registry: contents and provenance. The programs embed their list of crates.
  attest = ["type=sbom", "type=provenance,mode=max"]
}
