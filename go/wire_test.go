// SPDX-License-Identifier: MIT OR Apache-2.0

package taskdiag

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const golden = "../crates/taskdiag-wire/tests/golden"

func stream(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(golden, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func exported(name string) string {
	var all string
	for _, w := range strings.Split(name, "_") {
		if w != "" {
			all += strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return all
}

var member = regexp.MustCompile(`^task_diag_(\w+?)(?:\[(\d+)\])?\.(\w+) (.*)$`)

// structOf is a record of a task, or an entry of a list, by its name in the header.
func structOf(task Task, name, index string) (reflect.Value, bool) {
	if index == "" {
		out := reflect.ValueOf(task).MethodByName(exported(name)).Call(nil)
		return out[0], out[1].Bool()
	}
	out := reflect.ValueOf(task).MethodByName(exported(name) + "s").Call(nil)
	i, _ := strconv.Atoi(index)
	if !out[1].Bool() || i >= out[0].Len() {
		return reflect.Value{}, false
	}
	return out[0].Index(i), true
}

// value writes a member as the golden text has it: integers without sign, anything longer as bytes.
func value(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Int32:
		return fmt.Sprint(uint32(v.Int()))
	case reflect.Int64:
		return fmt.Sprint(uint64(v.Int()))
	case reflect.Slice:
		var s strings.Builder
		for _, b := range v.Bytes() {
			switch {
			case b == '\n':
				s.WriteString(`\n`)
			case b == '\t':
				s.WriteString(`\t`)
			case b == '\r':
				s.WriteString(`\r`)
			case b == '"' || b == '\'' || b == '\\':
				s.WriteString("\\" + string(rune(b)))
			case b < ' ' || b > '~':
				fmt.Fprintf(&s, `\x%02x`, b)
			default:
				s.WriteByte(b)
			}
		}
		return s.String()
	}
	return fmt.Sprint(v.Interface())
}

// known counts the members that a task's records and lists have.
func known(task Task) int {
	n := 0
	count := func(r reflect.Value) {
		for i := 0; i < r.NumMethod(); i++ {
			if out := r.Method(i).Call(nil); out[1].Bool() {
				n++
			}
		}
	}
	v := reflect.ValueOf(task)
	for i := 0; i < v.NumMethod(); i++ {
		kind := v.Method(i).Type()
		if kind.NumIn() != 0 || kind.NumOut() != 2 || kind.Out(1).Kind() != reflect.Bool || v.Type().Method(i).Name == "Shared" {
			continue
		}
		out := v.Method(i).Call(nil)
		if out[0].Kind() != reflect.Slice {
			count(out[0])
			continue
		}
		for e := 0; e < out[0].Len(); e++ {
			count(out[0].Index(e))
		}
	}
	return n
}

// The texts have the values that were written into the streams.
func TestGoldenStreamsHaveTheirValues(t *testing.T) {
	s, err := Parse(stream(t, "0.1.0-first.stream"))
	if err != nil {
		t.Fatal(err)
	}
	task, seen, members := -1, 0, 0
	for _, line := range strings.Split(string(stream(t, "0.1.0-first.txt")), "\n") {
		if strings.HasPrefix(line, "task ") {
			task++
			if want := fmt.Sprintf("task %d %d", s.tasks[task].pid, s.tasks[task].tgid); line != want {
				t.Errorf("%s, and it is %s", line, want)
			}
		}
		if word := strings.Fields(line); len(word) == 3 && word[0] == "missing" {
			for n, name := range groupNames {
				if name == word[1] && s.tasks[task].Missing(Group(n)) == nil {
					t.Errorf("%s: it is not missing", line)
				}
			}
		}
		m := member.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		r, there := structOf(s.tasks[task], m[1], m[2])
		if !there {
			t.Errorf("%s: it is not there", line)
			continue
		}
		out := r.MethodByName(exported(m[3])).Call(nil)
		if got := value(out[0]); !out[1].Bool() || got != m[4] {
			t.Errorf("%s: it is %q, %v", line, got, out[1].Bool())
		}
		seen++
	}
	for _, task := range s.tasks {
		members += known(task)
	}
	if seen < 300 || members != seen {
		t.Errorf("the text has %d members, and %d are known", seen, members)
	}
	if s.Info.Strategy != Children || s.Info.CPUs != 622464772 || s.Info.RealtimeNs != 9039401048284216112 || s.Info.TicksASecond != 2239393636 {
		t.Errorf("INFO is %+v", s.Info)
	}
}

// What later versions added is there, too.
func TestGoldenStreamsOfLaterVersionsHaveWhatTheyAdded(t *testing.T) {
	names, _ := filepath.Glob(filepath.Join(golden, "*.diff"))
	if len(names) < 2 {
		t.Fatalf("%d streams", len(names))
	}
	for _, name := range names {
		s, err := Parse(stream(t, strings.TrimSuffix(filepath.Base(name), ".diff")+".stream"))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(stream(t, filepath.Base(name))), "\n") {
			m := member.FindStringSubmatch(strings.TrimPrefix(line, "> "))
			if m == nil || line[0] != '>' {
				continue
			}
			found := false
			for _, task := range s.tasks {
				if r, there := structOf(task, m[1], m[2]); there {
					out := r.MethodByName(exported(m[3])).Call(nil)
					found = found || out[1].Bool() && value(out[0]) == m[4]
				}
			}
			if !found {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
}

// everything calls each function that reads an answer.
func everything(s *Snapshot) {
	for _, p := range s.Processes() {
		known(p.Task)
		for g := Group(0); g < 64; g++ {
			p.Missing(g)
			p.Text(g)
		}
		p.Path(Exe)
		p.CgroupPath(0)
		v := reflect.ValueOf(p)
		for i := 0; i < v.NumMethod(); i++ {
			if v.Method(i).Type().NumIn() == 0 {
				v.Method(i).Call(nil)
			}
		}
	}
	for n := range s.names {
		s.Name(n)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"0.1.0-first.stream", "0.1.0.stream"} {
		f.Add(stream(f, name))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := Parse(data); err == nil {
			everything(s)
		} else if !errors.Is(err, ErrFormat) {
			t.Error(err)
		}
	})
}

// Each byte of a stream is changed, and each length is cut.
func TestDamagedStreamsAreErrorsOrReadable(t *testing.T) {
	data := stream(t, "0.1.0.stream")
	for i := range data {
		if _, err := Parse(data[:i]); !errors.Is(err, ErrFormat) {
			t.Fatalf("the first %d bytes: %v", i, err)
		}
		for _, b := range []byte{0, 1, 7, 0x80, 0xff} {
			changed := append([]byte(nil), data...)
			changed[i] = b
			if s, err := Parse(changed); err == nil && i%16 == 0 {
				everything(s)
			}
		}
	}
}
