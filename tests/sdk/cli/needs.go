//go:build tools

// Package cli names the existing command line, so that it can be built.
package cli

import _ "github.com/redhat-developer/app-services-cli/cmd/rhoas"
