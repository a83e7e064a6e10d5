import ast
import builtins
import sys

API = {
    "Executable", "bash_completion_path", "conflicts", "depends_on", "fish_completion_path", "join_path", "license",
    "mkdirp", "run_after", "variant", "version", "zsh_completion_path",
}
tree = ast.parse(open(sys.argv[1]).read())
recipe = next(node for node in tree.body if isinstance(node, ast.ClassDef))
assert recipe.name == "Pegel", recipe.name
assert [base.id for base in recipe.bases] == ["CargoPackage"]
assert ast.get_docstring(recipe)
known = API | set(dir(builtins)) | {"CargoPackage", "os", "self"}
stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
unknown = used - known - stored
assert not unknown, unknown
variants = [node.args[0].value for node in ast.walk(recipe) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "variant"]
assert variants == ["prometheus"], variants
