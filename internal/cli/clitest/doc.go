// Package clitest has tests for behaviour that the commands of both programs share.
package clitest
