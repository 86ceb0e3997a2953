package fio

import (
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// keywords holds the names that stand for facts about this machine in the values of a job file.
var keywords = []struct {
	name  string
	value func() int64
}{
	{"$pagesize", func() int64 { return int64(os.Getpagesize()) }},
	{"$mb_memory", memoryMegabytes},
	{"$ncpus", func() int64 { return int64(runtime.NumCPU()) }},
}

// memoryMegabytes returns the machine's memory in MiB.
func memoryMegabytes() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit) >> 20
}

// replaceKeywords replaces keywords by their values, and then evaluates the value if it is an expression, such as
// 2*$ncpus.
func replaceKeywords(value string) string {
	if !strings.Contains(value, "$") {
		return value
	}
	text := value
	for _, k := range keywords {
		text = strings.ReplaceAll(text, k.name, strconv.FormatInt(k.value(), 10))
	}
	if !strings.ContainsAny(text, "+-*/") || expressed(text) {
		return text
	}
	if n, err := evaluate(text, parseNumber); err == nil {
		return strconv.FormatInt(n, 10)
	}
	return text
}
