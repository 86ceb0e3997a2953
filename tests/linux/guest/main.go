// Command guest is the first process of a lab machine: it mounts what a Linux system needs, brings up the network as
// the kernel's command line says, and runs what the lab asks for.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

const path = "/usr/sbin:/usr/bin:/sbin:/bin"

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "guest: this is the init of a lab machine, not a program to run")
		os.Exit(2)
	}
	_ = os.Setenv("PATH", path)
	_ = os.Setenv("HOME", "/root")
	err := setUp()
	if err == nil && argument("shell") != "" {
		err = serveShell()
	} else if err == nil {
		err = serveLab()
	}
	fmt.Fprintln(os.Stderr, "guest:", err)
	time.Sleep(100 * time.Millisecond) // the console is slow, and the end of init is the end of everything
	os.Exit(1)
}

// argument returns the value of lab.name in the kernel's command line.
func argument(name string) string {
	line, _ := os.ReadFile("/proc/cmdline")
	for word := range strings.FieldsSeq(string(line)) {
		if v, ok := strings.CutPrefix(word, "lab."+name+"="); ok {
			return v
		}
	}
	return ""
}

// run runs a command of the machine to its end.
func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
