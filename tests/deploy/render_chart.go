// Renders the templates of a chart with Go's text/template, where helm itself cannot be had.
//
//	go run render_chart.go TEMPLATES_FOLDER < values.json
//
// Of helm's functions it has those that the chart uses, and no other: a template that needs more fails here. toYaml gives JSON,
// which is YAML too. What helm does beyond that (hooks, lookups, the order of installation) is not checked.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"
)

func main() {
	if err := render(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func render(folder string) error {
	var data map[string]any
	if err := json.NewDecoder(os.Stdin).Decode(&data); err != nil {
		return err
	}
	all := template.New("chart").Option("missingkey=error")
	all.Funcs(template.FuncMap{
		"include": func(name string, given any) (string, error) {
			var out bytes.Buffer
			err := all.ExecuteTemplate(&out, name, given)
			return out.String(), err
		},
		"nindent": func(spaces int, text string) string {
			pad := "\n" + strings.Repeat(" ", spaces)
			return pad + strings.ReplaceAll(text, "\n", pad)
		},
		"toYaml": toYAML,
		"quote": func(given any) (string, error) {
			quoted, err := json.Marshal(fmt.Sprint(given))
			return string(quoted), err
		},
		"default": func(otherwise, given any) any {
			if given == nil || given == "" {
				return otherwise
			}
			return given
		},
		"trunc":      func(most int, text string) string { return text[:min(most, len(text))] },
		"trimSuffix": func(suffix, text string) string { return strings.TrimSuffix(text, suffix) },
		"sha256sum":  func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) },
	})
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		return err
	}
	if _, err := all.ParseFiles(files...); err != nil {
		return err
	}
	for _, file := range files {
		if filepath.Ext(file) != ".yaml" {
			continue
		}
		fmt.Printf("---\n# %s\n", filepath.Base(file))
		if err := all.ExecuteTemplate(os.Stdout, filepath.Base(file), data); err != nil {
			return err
		}
		fmt.Println()
	}
	return nil
}

// toYAML gives a map one line a key, so that it can be put among others, and anything else as JSON items.
func toYAML(given any) (string, error) {
	var lines []string
	switch value := given.(type) {
	case map[string]any:
		for key, inner := range value {
			name, err := json.Marshal(key)
			if err != nil {
				return "", err
			}
			text, err := json.Marshal(inner)
			if err != nil {
				return "", err
			}
			lines = append(lines, string(name)+": "+string(text))
		}
		sort.Strings(lines)
	case []any:
		for _, inner := range value {
			text, err := json.Marshal(inner)
			if err != nil {
				return "", err
			}
			lines = append(lines, "- "+string(text))
		}
	default:
		text, err := json.Marshal(given)
		return string(text), err
	}
	return strings.Join(lines, "\n"), nil
}
