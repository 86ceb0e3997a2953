// Package clitest holds what both programs' commands have to do alike, for their tests.
package clitest
